"""Send a message when a run of marginflow fails, or its gate says no: `python deploy/notify.py URL`.

Makes a Prefect automation on the server of PREFECT_API_URL, or changes the one that is there.
"""

import sys

from prefect.automations import Automation
from prefect.blocks.notifications import CustomWebhookNotificationBlock
from prefect.events.actions import SendNotification
from prefect.events.schemas.automations import EventTrigger

NAME = "marginflow-failed"


def main(url: str) -> None:
    """Let the server post `{"text": ...}` to `url`."""
    block = CustomWebhookNotificationBlock(name=NAME, url=url, json_data={"text": "{{subject}}: {{body}}"})
    trigger = EventTrigger(
        expect={"prefect.flow-run.Failed", "prefect.flow-run.Crashed"},
        match={"prefect.resource.id": "prefect.flow-run.*"},
        match_related={"prefect.resource.role": "flow", "prefect.resource.name": "marginflow"},
        posture="Reactive",
        threshold=1,
    )
    message = SendNotification(
        block_document_id=block.save(NAME, overwrite=True),
        subject="{{ flow_run.name }}",
        body="{{ flow_run.state.message }}, {{ flow_run|ui_url or flow_run.id }}",
    )
    automation = Automation(name=NAME, trigger=trigger, actions=[message])
    try:
        automation.id = Automation.read(name=NAME).id
    except ValueError:  # there is none yet
        automation.create()
    else:
        automation.update()
    sys.stdout.write(f"{NAME}: failed runs of marginflow are told to {url}\n")


if __name__ == "__main__":
    main(sys.argv[1])
