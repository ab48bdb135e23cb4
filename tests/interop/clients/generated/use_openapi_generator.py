"""The main calls, by a client that openapi-generator generates. Arguments: URL, key, image of an echo."""

import sys

import openapi_client as api

url, key, image = sys.argv[1:]
configuration = api.Configuration(host=url, access_token=key, api_key={"bare": key})
client = api.ApiClient(configuration)
templates, endpoints, jobs = api.TemplatesApi(client), api.EndpointsApi(client), api.JobsApi(client)
template = templates.create_template(api.NewTemplate(name="generated-b", imageName=image))
endpoint = endpoints.create_endpoint(api.NewEndpoint(templateId=template.id))
job = jobs.run_sync(endpoint.id, api.Submission(input={"grain": ["rye", 2]}))
assert job.status == "COMPLETED" and job.output == {"grain": ["rye", 2]}, job
endpoints.delete_endpoint(endpoint.id)
templates.delete_template(template.id)
print("1 passed")
