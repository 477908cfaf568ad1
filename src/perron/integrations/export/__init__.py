"""Export to other runtimes: ONNX and `torch.export` (extra ``export``)."""

try:
    import onnx  # noqa: F401
    import onnxruntime  # noqa: F401
    import onnxscript  # noqa: F401
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"perron.integrations.export requires {error.name}. Install it with: "
        "pip install 'perron[export]'",
        name=error.name,
    ) from error

from perron.integrations.export.operators import DEFAULT_OPSET, OPSETS
from perron.integrations.export.write import (
    ExportResult,
    check_folder,
    export_onnx,
    export_torch,
)

__all__ = [
    "DEFAULT_OPSET",
    "OPSETS",
    "ExportResult",
    "check_folder",
    "export_onnx",
    "export_torch",
]
