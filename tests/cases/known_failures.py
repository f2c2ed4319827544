"""Cases that cannot be compiled yet, and why. The list is strict: a case that is right fails its test until it leaves the list."""

KNOWN_FAILURES = {
    "05_loop_zero_trips_scan": "an input is the Loop's trip count and with that the length of outputs, which data may not decide",
}
