"""`python -m regard`, which torchrun and `--processes` start as well."""

import sys

try:
    from regard.cli.main import main
except KeyboardInterrupt:  # while modules load: nothing has begun, so there is nothing to save
    sys.exit(130)

if __name__ == "__main__":
    main()
