"""One module for each contestant. Each runs in a process of its own, in the virtual environment of its library."""
