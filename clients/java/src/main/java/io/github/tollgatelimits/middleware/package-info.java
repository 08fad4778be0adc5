/** What the middleware of all frameworks has in common: descriptors of a request, and answers. */
package io.github.tollgatelimits.middleware;
