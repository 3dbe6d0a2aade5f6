"""A real API server on this machine, for what only one can say: admission, webhooks, RBAC."""
