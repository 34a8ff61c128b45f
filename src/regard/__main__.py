"""`python -m regard`, which torchrun and `--processes` start as well."""

import sys


def main() -> None:
    try:
        from regard.cli.main import main as run
    except KeyboardInterrupt:  # while modules load: nothing has begun, so there is nothing to save
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()
