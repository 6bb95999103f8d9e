// The package, for tests to call.

import * as tightrope from "../node_modules/tightrope-web/dist/index.js";
import { defineMap } from "../node_modules/tightrope-web/dist/map.js";

defineMap();
Object.assign(globalThis, { tightrope });
