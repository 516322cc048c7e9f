"""Print the JSON schema of config.yaml, for editors: python scripts/schema.py > workflow/schemas/config.schema.json"""

import json

from dpscale.config import Config


def schema() -> str:
    content = {"$schema": "https://json-schema.org/draft/2020-12/schema", **Config.model_json_schema(by_alias=True)}
    return json.dumps(content, indent=2) + "\n"


if __name__ == "__main__":
    print(schema(), end="")
