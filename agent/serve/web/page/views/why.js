import {empty, head} from '../core/widgets.js';

/** Renders the view. */
export async function render(root) {
  root.append(head('Why'), empty('This view is not written yet.'));
}
