"""JAX in: functions of JAX as functions that weft compiles."""
