//! The tags, in the order in which the document shows them.

pub(crate) const JOBS: &str = "jobs";
pub(crate) const HANDLERS: &str = "handlers";
pub(crate) const TEMPLATES: &str = "templates";
pub(crate) const REGISTRY_AUTHS: &str = "container registry auths";
pub(crate) const ENDPOINTS: &str = "endpoints";
pub(crate) const VOLUMES: &str = "network volumes";
pub(crate) const SCHEDULES: &str = "schedules";
pub(crate) const KEYS: &str = "keys";
pub(crate) const BILLING: &str = "billing";
pub(crate) const HOST: &str = "host";
