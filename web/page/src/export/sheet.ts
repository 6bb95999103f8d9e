// The sheet that a map is drawn on: its title above, its legend below, in CSS pixels.

export const WIDTH = 960;
export const HEIGHT = 480;
export const TITLE = 36;
export const LEGEND = 30;
/** Free space above the highest line. */
export const HEADROOM = 1.07;
