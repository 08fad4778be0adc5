/** Rate limits for Jakarta Servlet. */
package io.github.tollgatelimits.servlet;
