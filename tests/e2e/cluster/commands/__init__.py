"""Commands of administrators, and the page of a controller."""
