"""The allocation core: who runs on which GPU type, decided from arrays. No Django, no I/O, no clock."""
