"""Random programs through both entries, beside eager: python -m tests.fuzz --minutes 60."""
