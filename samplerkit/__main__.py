"""`python -m samplerkit`: the command line, for environments without scripts on the path."""

from samplerkit.cli.main import main

if __name__ == "__main__":
    main()
