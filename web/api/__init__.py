"""REST views and serializers of nodes, rounds, policies, teams, accounts, and jobs in relation to rounds."""
