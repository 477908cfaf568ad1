from layers.threads import one_thread  # noqa: F401
