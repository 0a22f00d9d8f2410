"""`python -m samplerkit`: the command, where scripts are not on the path."""

from samplerkit.cli.main import main

if __name__ == "__main__":
    main()
