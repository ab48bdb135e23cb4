//! Changes of the catalog in a caller's name.
//!
//! **Promises.** A key that was revoked, or has expired, changes nothing. A call may last for minutes
//! between its first look at the key and the change: its body is on its way, a component waits for its
//! compile, or an image is being fetched. So the change itself looks again, at the same view of the
//! catalog that it decides on.

use gristmill_core::catalog::{CatalogChange, View};
use gristmill_core::key::ApiKey;

use crate::auth::current;
use crate::error::ApiError;
use crate::state::ApiState;

impl ApiState {
    /// Changes the catalog as `decide` says, if the caller's key still holds then. See
    /// [`Catalog::change_for`](gristmill_core::catalog::Catalog::change_for).
    ///
    /// # Errors
    /// What `decide` refuses, those of the catalog, and 401 when the key does not hold any more.
    pub(crate) async fn change<T>(
        &self,
        caller: &ApiKey,
        decide: impl FnOnce(&View) -> Result<(Vec<CatalogChange>, T), ApiError>,
    ) -> Result<T, ApiError> {
        let decide_if_held = |view: &View| {
            current(caller, view, self)?;
            decide(view)
        };
        self.catalog.change_for(caller, decide_if_held).await
    }
}
