"""The base of everything typed that a user writes: configs, and the options that a table's row takes."""

from __future__ import annotations

import re
from typing import Annotated, Any, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    StringConstraints,
    ValidationError,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from dpscale.errors import PASSWORD, ConfigError, shown, suggest


def _number(value: Any) -> Any:
    """YAML 1.1 reads 1e-3 as text; take it as the number that it is."""
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return value
    return value


def _flag(value: Any) -> Any:
    """`snakemake --config partial=true` hands over text."""
    return {"true": True, "false": False}.get(value, value) if isinstance(value, str) else value


def _countable(value: int) -> int:
    if value >= 2**31:  # torch's own limit of most counts
        raise ValueError("more than any machine has; write a smaller number")
    return value


def no_password(text: str) -> str:
    if PASSWORD.search(text):
        raise ValueError(
            "a password written here would be kept with the results; take it out, and leave it to ~/.netrc, or of a "
            "container to `apptainer registry login`"
        )
    return text


def each_once(values: list[str]) -> list[str]:
    if repeated := sorted({value for value in values if values.count(value) > 1}):
        raise ValueError(f"{', '.join(repeated)} listed more than once; keep one")
    return values


Listed = Annotated[list[str], Field(min_length=1), AfterValidator(each_once)]
Flag = Annotated[bool, BeforeValidator(_flag)]
Number = Annotated[float, BeforeValidator(_number), Field(allow_inf_nan=False)]
NAME = r"^[a-z][a-z0-9_]+$"
Name = Annotated[str, StringConstraints(pattern=NAME, max_length=100)]  # of a folder: file systems take 255 bytes
Count = Annotated[int, Field(ge=1), AfterValidator(_countable)]


class Strict(BaseModel):
    """No unknown keys, no silent conversions, no later change."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, populate_by_name=False)

    @model_validator(mode="before")
    @classmethod
    def _known_keys_only(cls, data: Any) -> Any:
        if data is None:  # `ddp:` with nothing behind it means all defaults
            return {}
        if isinstance(data, dict) and cls.model_config.get("extra") == "forbid":
            valid = [field.alias or name for name, field in cls.model_fields.items()]
            unknown = [key for key in data if key not in valid]
            if unknown:
                raise ValueError("; ".join(f"unknown key {shown(key)}: {suggest(key, valid)}" for key in unknown))
        return data

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Editors take an empty level too."""
        schema = handler(core)
        handler.resolve_ref_schema(schema)["type"] = ["object", "null"]
        return schema


Model = TypeVar("Model", bound=Strict)


def validated(model: type[Model], data: dict[str, Any], place: str) -> Model:
    """`data` as `model`, for the options that a row of a table types itself.

    Raises:
        ConfigError: one line per problem, each path beginning with `place`.
    """
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise ConfigError(describe(item, place) for item in error.errors()) from None


def _as_keys(key: str, value: Any) -> str:
    """The same names as keys, where names were given: what somebody who wrote a list, or one name, was after."""
    names = value if isinstance(value, list) else [value]
    if not names or not all(isinstance(name, str) for name in names):
        return ""
    return f"; with defaults alone: {key}: {{{', '.join(f'{name}: null' for name in names)}}}"


def describe(item: Any, place: str = "") -> str:
    path = ".".join([place] * bool(place) + [str(part) for part in item["loc"] if part != "[key]"])
    value = item["input"]
    message = item["msg"].removeprefix("Value error, ")
    if item["type"] == "string_pattern_mismatch" and item["ctx"]["pattern"] == NAME:
        message = "names are two or more of a-z, 0-9 and _, beginning with a letter"
    elif item["type"] == "string_type" and item["loc"][-1] == "[key]":
        message = "a name is text; write it in quotes"
    elif item["type"] == "literal_error":
        expected = item["ctx"]["expected"]
        valid = re.findall(r"'([^']*)'", expected) or re.findall(r"\d+", expected)
        message = f"not known: {suggest(value, valid)}"
    elif item["type"] == "int_parsing_size":  # of a choice between integers, beyond 64 bits
        message = "far larger than any value valid here; write a smaller number"
    elif item["type"] in ("model_type", "dict_type"):
        as_keys = _as_keys(path.rpartition(".")[2], value) if item["type"] == "dict_type" else ""
        message = f"keys with values are expected here{as_keys}"
    elif item["type"] == "list_type" and not isinstance(value, dict):
        message = f"a list is expected here; write [{value if isinstance(value, str) else shown(value)}]"
    elif item["type"] == "missing":
        return f"{path}: this key is required"
    found = "" if isinstance(value, dict | list | BaseModel) else f" = {shown(value)}"
    return f"{path or 'top level'}{found}: {message[:1].lower()}{message[1:]}"
