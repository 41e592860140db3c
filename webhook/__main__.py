"""`python -m webhook`: the same as `deferred-quota`."""

from webhook.cli import main

if __name__ == "__main__":
    main()
