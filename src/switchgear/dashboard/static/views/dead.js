// What needs a person?

import { jobsView } from "./jobs.js";

export default jobsView(true);
