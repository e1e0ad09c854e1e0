"""The package ``fieldgate`` of the wheel: ``import fieldgate; lake = fieldgate.open("lake/")``."""

try:
    from cloud.errors import CloudError
    from cloud.exports.frames import Lake, Rows, open
    from cloud.lake.numbers import iec_turbulence, weibull
except ModuleNotFoundError as error:
    if error.name not in ("deltalake", "duckdb", "pandas", "pyarrow"):
        raise
    message = f"fieldgate.open needs the extra analyst ({error}): pip install 'fieldgate[analyst]'"
    raise ModuleNotFoundError(message, name=error.name) from None

__all__ = ["CloudError", "Lake", "Rows", "iec_turbulence", "open", "weibull"]
