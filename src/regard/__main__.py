"""`python -m regard`; torchrun and `--processes` start it too."""

import sys


def main() -> None:
    try:
        from regard.cli.main import main as run
    except KeyboardInterrupt:  # while modules load: there is nothing to save yet
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()
