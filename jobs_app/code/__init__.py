"""Code that jobs run: archives that are uploaded, checked, stored by their digest and deleted when nobody uses them."""
