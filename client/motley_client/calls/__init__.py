"""What the service can be asked, one module for each subject; `motley_client.client.Client` has all of it."""
