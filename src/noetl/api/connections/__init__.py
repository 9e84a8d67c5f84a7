"""What a server gives a connection before anybody is known: bounds on its bytes, its time and its number, and who is at the other end."""
