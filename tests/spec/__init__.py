"""The specification of the ownership protocol (`docs/spec`), checked by the model checker TLC.

`scripts/model-check.sh` runs it.
"""
