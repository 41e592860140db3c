"""What reads bytes from outside, given bytes that nothing was meant to send."""
