"""What is broken on purpose: processes, connections, and objects under the product's hands.

Every fault breaks one thing, waits, mends it and says what it was. Which one, and for how long,
comes from a seeded chance.
"""
