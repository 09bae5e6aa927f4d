"""What users can set on the policies."""

from typing import Annotated

from pydantic import BaseModel, Field

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class PrioritySettings(BaseModel):
    """Settings of the policy ``priority``: ``CORELM_PRIORITY_AGEING_S``, ``--priority.ageing-s``."""

    ageing_s: Positive | None = Field(
        None, description="Seconds of waiting that are worth one priority level. Without it, waiting is worth nothing."
    )


class FairSettings(BaseModel):
    """Settings of the policy ``fair``: ``CORELM_FAIR_INPUT_WEIGHT``, ``--fair.input-weight`` and so on."""

    input_weight: Positive = Field(1.0, description="What computing one prompt token counts; cached ones are free.")
    output_weight: Positive = Field(2.0, description="What generating one token counts.")
    weights: dict[str, Positive] = Field(
        {}, description="Shares of tenants by name, such as `gold=2`. Tenants that are not named have 1."
    )
