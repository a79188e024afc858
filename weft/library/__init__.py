"""The library whose operators run what weft does not generate: torch."""
