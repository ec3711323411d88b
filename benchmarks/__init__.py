"""How long things take, measured on this machine; figures for the docs come from here."""
