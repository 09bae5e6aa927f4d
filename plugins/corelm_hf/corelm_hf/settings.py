"""What users can set."""

from pathlib import Path

from pydantic import BaseModel, Field


class HfSettings(BaseModel):
    """Settings of the tokenizer "hf"."""

    chat_template: Path | None = Field(
        default=None, description="File with a Jinja chat template, used instead of the model's own."
    )
