"""Real models that do not pass yet, and why. The list is strict: a model that passes fails its test until it leaves the list."""

KNOWN_FAILURES: dict[str, str] = {}
