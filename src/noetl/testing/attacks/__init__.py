"""What an attacker sends, writes and breaks: hostile documents, forged reports, half-sent requests, flipped bits.

One module holds the material of one kind of attack; `tests/attacks` plays it against running servers and asserts that
the system holds. Nothing here is imported by the product.
"""
