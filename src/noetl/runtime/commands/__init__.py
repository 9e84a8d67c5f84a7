"""What commands open: settings go in, the connected parts that a command works with come out for the time of a block.

A command that ends by itself needs fewer parts than a role, and other ones. They are chosen and connected here; the
command line parses options, calls, and shows what came out. Nothing here prints: warnings go to a callback.

Command modules import these modules when they show their help, so what is slow to import is imported in functions.
"""
