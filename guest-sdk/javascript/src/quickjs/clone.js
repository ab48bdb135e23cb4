// `structuredClone`, of core-js.

import "./promise.js";

import "core-js/modules/web.structured-clone.js";
