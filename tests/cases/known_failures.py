"""Cases that cannot be compiled yet, and why. The list is strict: a case that is right fails its test until it leaves the list."""

KNOWN_FAILURES: dict[str, str] = {}
