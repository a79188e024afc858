"""Rows of operators by family; importing a family enters its rows into the table."""
