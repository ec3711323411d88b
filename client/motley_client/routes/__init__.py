"""Routes of REST as methods, by subject; `Client` has all of them."""
