//! Templates.

use gristmill_control::TemplateUsage;
use gristmill_core::billing::price::Prices;
use gristmill_core::deploy::template;
use gristmill_wire::management::Template;

use crate::answer::amount::amount;
use crate::request::brand::{NEUTRAL, branded_field};

/// The answer's form of a template.
pub(crate) fn template(
    template: &template::Template,
    brand: &str,
    used: &TemplateUsage,
    prices: &Prices,
) -> Template {
    let earned = amount(used.earned(template, prices));
    let runtime_in_min = used.runtime_min(template);
    let template = template.clone();
    let branded = (brand != NEUTRAL).then(|| (branded_field(brand), template.is_platform));
    Template {
        id: template.id,
        name: template.name,
        image_name: template.image,
        category: template.category,
        container_disk_in_gb: template.container_disk_gb,
        volume_in_gb: template.volume_gb,
        volume_mount_path: template.volume_mount_path,
        container_registry_auth_id: template.registry_auth,
        docker_entrypoint: template.entrypoint,
        docker_start_cmd: template.start_command,
        env: template.env,
        ports: template.ports,
        readme: template.readme,
        is_public: template.is_public,
        is_platform: template.is_platform,
        is_serverless: template.is_serverless,
        earned,
        runtime_in_min,
        branded: branded.into_iter().collect(),
    }
}
