"""What each ATen overload means in tensor primitives: one row per overload, a file per family."""
