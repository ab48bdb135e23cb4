"""The main calls, by a client that openapi-python-client generates. Arguments: URL, key, image of an echo."""

import sys

from gristmill_client import AuthenticatedClient
from gristmill_client.api.endpoints import create_endpoint, delete_endpoint
from gristmill_client.api.jobs import run_sync
from gristmill_client.api.templates import create_template, delete_template
from gristmill_client.models import (
    EndpointWithSecret,
    NewEndpoint,
    NewTemplate,
    StatusDocument,
    Submission,
    SubmissionInput,
    Template,
)

url, key, image = sys.argv[1:]
client = AuthenticatedClient(base_url=url, token=key)
template = create_template.sync(client=client, body=NewTemplate(name="generated-a", image_name=image))
assert isinstance(template, Template), template
endpoint = create_endpoint.sync(client=client, body=NewEndpoint(template_id=template.id))
assert isinstance(endpoint, EndpointWithSecret), endpoint
body = Submission(input_=SubmissionInput.from_dict({"grain": ["rye", 2]}))
job = run_sync.sync(endpoint.id, client=client, body=body)
assert isinstance(job, StatusDocument), job
assert job.status == "COMPLETED" and job.output == {"grain": ["rye", 2]}, job
delete_endpoint.sync_detailed(endpoint.id, client=client)
delete_template.sync_detailed(template.id, client=client)
print("1 passed")
