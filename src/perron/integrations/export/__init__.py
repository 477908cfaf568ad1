"""Models for other runtimes: ONNX, and programs of `torch.export`."""

try:
    import onnx  # noqa: F401
    import onnxruntime  # noqa: F401
    import onnxscript  # noqa: F401
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"perron.integrations.export needs {error.name}: pip install 'perron[export]'",
        name=error.name,
    ) from error

from perron.integrations.export.operators import DEFAULT_OPSET, OPSETS
from perron.integrations.export.write import (
    Exported,
    check_folder,
    export_onnx,
    export_torch,
)

__all__ = [
    "DEFAULT_OPSET",
    "OPSETS",
    "Exported",
    "check_folder",
    "export_onnx",
    "export_torch",
]
