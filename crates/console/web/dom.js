// Preact with htm: templates without a build step. All text becomes text nodes, never markup.
import { h, render, Component, Fragment } from './vendor/preact.js';
import { useEffect, useRef, useState } from './vendor/hooks.js';
import htm from './vendor/htm.js';

export const html = htm.bind(h);
export { render, Component, Fragment, useEffect, useRef, useState };
