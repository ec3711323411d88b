"""The allocation core: which job runs on which GPU type, decided from arrays. No Django, no I/O."""
