"""Explanations and forecasts: reasons, what-if, the policy lab, the timeline, effects of policies."""
